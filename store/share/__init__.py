"""Publish banks to where others read them, and copy them from there."""
