"""Shapes of everything in parameters/: one pydantic model per kind of file.

Loading is escherlib.parameters' work.
"""
