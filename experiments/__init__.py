"""Paired experiments: the same load on each transport, CPU accounts, a report from raw data.

Everything of the service is used through the command line and files; `__main__` lists the commands.
"""
