import unittest
from fractions import Fraction

from pantry.recipes import Ingredient, Recipe


class Recipes(unittest.TestCase):
    def test_an_ingredient_is_read_and_written(self):
        milk = Ingredient.parse("1/2 cup oat milk")
        self.assertEqual(milk, Ingredient(Fraction(1, 2), "cup", "oat milk"))
        self.assertEqual(str(milk), "1/2 cup oat milk")

    def test_a_recipe_collects_its_ingredients(self):
        pancakes = Recipe("pancakes").add("2 cup flour").add("3 piece egg")
        self.assertEqual([str(i) for i in pancakes.ingredients], ["2 cup flour", "3 piece egg"])


if __name__ == "__main__":
    unittest.main()
