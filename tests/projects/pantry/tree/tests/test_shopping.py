import unittest

from pantry.recipes import Recipe


class ShoppingLists(unittest.TestCase):
    def lines(self, *recipes):
        from pantry.shopping import shopping_list

        return [str(ingredient) for ingredient in shopping_list(recipes)]

    def test_the_same_thing_in_the_same_unit_is_added_up(self):
        pancakes = Recipe("pancakes").add("2 cup flour").add("1/2 cup milk")
        waffles = Recipe("waffles").add("1 cup flour").add("3/4 cup milk")
        self.assertEqual(self.lines(pancakes, waffles), ["3 cup flour", "1 1/4 cup milk"])

    def test_other_units_stay_apart_and_the_list_is_sorted_by_name(self):
        bread = Recipe("bread").add("500 g flour").add("2 tsp salt")
        cake = Recipe("cake").add("1 cup flour").add("1 piece egg")
        self.assertEqual(self.lines(bread, cake), ["1 piece egg", "1 cup flour", "500 g flour", "2 tsp salt"])

    def test_nothing_to_cook_is_nothing_to_buy(self):
        self.assertEqual(self.lines(), [])


if __name__ == "__main__":
    unittest.main()
