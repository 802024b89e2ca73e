"""Sources of strategies: loading from ``FILE.py:CLASS``, and hashes for results that are kept."""

import hashlib
import importlib.util
import inspect
import sys
from pathlib import Path

from ._terrace import TerraceError


def load(name):
    """Returns the class or object of ``FILE.py:CLASS``."""
    file, _, attribute = name.rpartition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise TerraceError(f"strategy {name}: file {file} does not exist")
    module = "terrace_strategy_" + hashlib.sha256(str(path).encode()).hexdigest()[:16]
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, path)
        made = importlib.util.module_from_spec(spec)
        sys.modules[module] = made
        try:
            spec.loader.exec_module(made)
        except BaseException:
            del sys.modules[module]
            raise
    try:
        return getattr(sys.modules[module], attribute)
    except AttributeError:
        raise TerraceError(f"strategy {name}: {file} has no {attribute}") from None


def locate(strategy):
    """Returns ``FILE.py:CLASS`` of a class, or of an object's class."""
    made = strategy if inspect.isclass(strategy) else type(strategy)
    try:
        file = inspect.getsourcefile(made)
    except TypeError:
        file = None
    if file is None or not Path(file).is_file() or "." in made.__qualname__:
        raise TerraceError(f"strategy {made.__name__}: its class is not at the top of a file; write it to one, and name it FILE.py:CLASS")
    return f"{file}:{made.__qualname__}"


def digest(strategy):
    """Returns the hash of everything that a strategy in Python is made of: the source of its file, or of its class, and its attributes."""
    if isinstance(strategy, str):
        strategy = load(strategy)
    made = strategy if inspect.isclass(strategy) else type(strategy)
    try:
        text = Path(inspect.getsourcefile(made)).read_text()
    except (TypeError, OSError):
        try:
            text = inspect.getsource(made)
        except (TypeError, OSError):
            raise TerraceError(
                f"strategy {made.__name__}: its source is not known, so results cannot be kept under its hash; write the class to a file"
            ) from None
    attributes = [] if strategy is made else sorted(vars(strategy).items())
    return hashlib.sha256(repr((text, made.__qualname__, attributes)).encode()).hexdigest()


def is_native(strategy):
    """Returns True for the name of a strategy that is built in."""
    return isinstance(strategy, str) and ".py:" not in strategy
