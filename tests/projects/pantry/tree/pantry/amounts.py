"""Amounts as cooks write them: `2`, `1/2`, `1 1/2`."""

from fractions import Fraction


def parse_amount(text):
    """Reads an amount. Raises ValueError for what is none."""
    text = text.strip()
    if not text:
        raise ValueError("an amount is needed")
    if "/" in text:
        # The part with the slash is the amount.
        text = text.split()[-1]
    return Fraction(text)


def format_amount(amount):
    """Writes an amount the way parse_amount reads it."""
    whole, rest = divmod(amount, 1)
    if rest == 0:
        return str(whole)
    if whole == 0:
        return str(rest)
    return f"{whole} {rest}"
