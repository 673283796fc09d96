"""The rules, one subject per module; `catalogue.py` lists them."""
