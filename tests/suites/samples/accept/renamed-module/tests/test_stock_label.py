import unittest

from stock import label


class Labels(unittest.TestCase):
    def test_a_label_says_how_many(self):
        self.assertEqual([label(0), label(2)], ["0 bottles", "2 bottles"])


if __name__ == "__main__":
    unittest.main()
