"""Anywidgets of the lab, one folder each: python, js, css. They import nothing of ours and carry their own data."""
