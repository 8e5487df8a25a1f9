"""How everything is told: safe texts, units, tables that fit a width, and files of rows."""
