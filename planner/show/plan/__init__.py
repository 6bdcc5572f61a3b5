"""A plan as tables and text. The verbs that show one, and the report, come in."""
