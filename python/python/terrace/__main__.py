"""``python3 -m terrace strategy FILE.py:CLASS``: process of a strategy."""

import sys

from . import _serve

if sys.argv[1:2] != ["strategy"]:
    sys.exit("usage: python3 -m terrace strategy FILE.py:CLASS")
sys.exit(_serve.main(sys.argv[2:]))
