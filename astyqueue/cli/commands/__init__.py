"""The commands of `astyqueue`, one module for each group of them, imported when one is used."""
