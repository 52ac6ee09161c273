"""Amounts, recipes and shopping lists."""
