"""Exceptions in other threads, for the Rust part. A call of `raise_in` keeps the interpreter's lock."""

import ctypes

# Raises an exception class in the thread with an identifier, at its next line of Python. NOTHING withdraws one that has not been raised.
raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)
NOTHING = ctypes.py_object()
