"""Attempts that find out what this machine can do, a file for each part of it."""
