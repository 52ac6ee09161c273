"""Recipes: a name and a list of ingredients."""

from dataclasses import dataclass, field
from fractions import Fraction

from pantry.amounts import format_amount, parse_amount


@dataclass(frozen=True)
class Ingredient:
    """So much of something."""

    amount: Fraction
    unit: str
    name: str

    @classmethod
    def parse(cls, line):
        """Reads `AMOUNT UNIT NAME`, as in `1/2 cup milk`."""
        words = line.split()
        count = 2 if len(words) > 3 and "/" in words[1] else 1
        amount = parse_amount(" ".join(words[:count]))
        return cls(amount, words[count], " ".join(words[count + 1 :]))

    def __str__(self):
        return f"{format_amount(self.amount)} {self.unit} {self.name}"


@dataclass
class Recipe:
    """What to cook, and from what."""

    name: str
    ingredients: list = field(default_factory=list)

    def add(self, line):
        """Adds an ingredient and answers the recipe."""
        self.ingredients.append(Ingredient.parse(line))
        return self
