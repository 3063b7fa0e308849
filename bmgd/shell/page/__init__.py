"""The page that `web.py` serves: files, no code."""
