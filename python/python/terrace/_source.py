"""Sources of strategies: loading from ``FILE.py:CLASS``, and hashes for results that are kept.

A file is executed from the text that is hashed, so an edited file is another module and has another hash.
"""

import hashlib
import inspect
import pickle
import sys
import time
import types
from pathlib import Path

from ._terrace import TerraceError

# A module that was imported from a file may differ from the file if the file is newer than this.
_STARTED_S = time.time()


def load(name):
    """Returns the class or object of ``FILE.py:CLASS``, from the present text of the file."""
    return _executed(name, *_read(name))


def _read(name):
    file = name.rpartition(":")[0]
    path = Path(file).resolve()
    if not path.is_file():
        raise TerraceError(f"strategy {name}: file {file} does not exist")
    return path, path.read_bytes()


def _executed(name, path, text):
    """Returns the class or object of ``FILE.py:CLASS`` from this text of the file, which is executed once."""
    file, _, attribute = name.rpartition(":")
    key = "terrace_strategy_" + hashlib.sha256(repr((str(path), text)).encode()).hexdigest()[:16]
    if key not in sys.modules:
        module = types.ModuleType(key)
        module.__file__, module._terrace_text = str(path), text
        sys.modules[key] = module
        try:
            exec(compile(text, str(path), "exec", dont_inherit=True), module.__dict__)
        except BaseException:
            del sys.modules[key]
            raise
    try:
        return getattr(sys.modules[key], attribute)
    except AttributeError:
        raise TerraceError(f"strategy {name}: {file} has no {attribute}") from None


def locate(strategy):
    """Returns ``FILE.py:CLASS`` of a class, or of an object's class."""
    made = _class_of(strategy)
    try:
        file = inspect.getsourcefile(made)
    except TypeError:
        file = None
    if file is None or not Path(file).is_file() or "." in made.__qualname__:
        raise TerraceError(f"strategy {made.__name__}: its class is not at the top of a file; write it to one, and name it FILE.py:CLASS")
    return f"{file}:{made.__qualname__}"


def digest(strategy):
    """Returns the hash of everything that a strategy in Python is made of: the source of its file, or of its class, and its attributes."""
    return _hash(strategy, _text_of(_class_of(strategy)))


def _hash(strategy, text):
    made = _class_of(strategy)
    attributes = [] if strategy is made else _pickled_attributes(strategy)
    return hashlib.sha256(repr((text, made.__qualname__, attributes)).encode()).hexdigest()


def _class_of(strategy):
    return strategy if inspect.isclass(strategy) else type(strategy)


def _text_of(made):
    """Returns the text that a class was made from: its file, or the class alone. An imported file that may have changed since is refused."""
    module = sys.modules.get(made.__module__)
    if hasattr(module, "_terrace_text"):
        return module._terrace_text
    try:
        path = Path(inspect.getsourcefile(made))
        text, status = path.read_bytes(), path.stat()
    except (TypeError, OSError):
        try:
            return inspect.getsource(made).encode()
        except (TypeError, OSError):
            raise TerraceError(
                f"strategy {made.__name__}: its source is not known, so results cannot be kept under its hash; write the class to a file"
            ) from None
    if status.st_mtime >= _STARTED_S and not _is_compiled(module, status):
        raise TerraceError(
            f"strategy {made.__name__}: {path} may have changed since the class was imported: restart Python, or name the strategy "
            f'"{path}:{made.__qualname__}"'
        )
    return text


def _is_compiled(module, status):
    """Returns True if the bytecode that Python wrote when it imported a module is that of a file with this status."""
    try:
        header = Path(module.__cached__).read_bytes()[:16]
    except (AttributeError, TypeError, OSError):
        return False
    flags, time_s, size = (int.from_bytes(header[i : i + 4], "little") for i in (4, 8, 12))
    return (flags, time_s, size) == (0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)


def _pickled_attributes(strategy):
    state = strategy.__getstate__()
    pickled = []
    for key, value in sorted(state.items()) if isinstance(state, dict) else [("state", state)]:
        try:
            pickled.append((key, pickle.dumps(value)))
        except Exception as why:
            raise TerraceError(
                f"strategy {type(strategy).__name__}: its attribute {key} cannot be pickled, so results cannot be kept under its hash: {why}"
            ) from None
    return pickled


class Strategy:
    """Strategy in Python of a sweep: `name` in its results, `object`, and `digest`, the hash of its source.

    A copy in another process is made from the same text, or refused.
    """

    is_copy = False

    def __init__(self, given):
        if isinstance(given, str):
            self.name, self.file = given, _read(given)
            self.object = _executed(given, *self.file)
        else:
            self.name, self.file = getattr(given, "name", _class_of(given).__name__), None
            self.object = given
        self.text = _text_of(_class_of(self.object))
        self.digest = _hash(self.object, self.text)

    def __getstate__(self):
        # The module of a file is unknown to other processes.
        return vars(self) if self.file is None else {**vars(self), "object": None}

    def __setstate__(self, state):
        vars(self).update(state, is_copy=True)

    def named(self):
        """Returns name and object."""
        if self.object is None:
            self.object = _executed(self.name, *self.file)
        made = _class_of(self.object)
        # A class that is not found under its name came by value.
        imported = getattr(sys.modules.get(made.__module__), made.__qualname__, None) is made
        if self.is_copy and imported and _text_of(made) != self.text:
            raise TerraceError(f"strategy {self.name}: the file of {made.__qualname__} on this node differs from that of the caller")
        return self.name, self.object


def named(strategies):
    """Returns strategies as the Rust part takes them: names of those that are built in, names and objects of those in Python."""
    return [s.named() if isinstance(s, Strategy) else s for s in strategies]


def is_native(strategy):
    """Returns True for the name of a strategy that is built in."""
    return isinstance(strategy, str) and ".py:" not in strategy
