"""All tests. Nothing outside imports from here."""
