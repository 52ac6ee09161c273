import unittest
from fractions import Fraction

from pantry.amounts import format_amount, parse_amount


class Amounts(unittest.TestCase):
    def test_whole_numbers_and_fractions_are_read(self):
        self.assertEqual(parse_amount("2"), 2)
        self.assertEqual(parse_amount(" 1/2 "), Fraction(1, 2))

    def test_a_mixed_number_keeps_its_whole_part(self):
        self.assertEqual(parse_amount("1 1/2"), Fraction(3, 2))
        self.assertEqual(parse_amount("2 3/4"), Fraction(11, 4))

    def test_what_is_written_is_read_back(self):
        for amount in [Fraction(1, 3), Fraction(5, 2), Fraction(4)]:
            self.assertEqual(parse_amount(format_amount(amount)), amount)

    def test_nonsense_is_refused(self):
        for text in ["", "some", "1 2", "1 1/2 3"]:
            with self.assertRaises(ValueError, msg=text):
                parse_amount(text)


if __name__ == "__main__":
    unittest.main()
