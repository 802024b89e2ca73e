"""Scenarios for other processes: text and path, with the traces as native files in a directory."""

from ._terrace import Scenario, Trace


def packed(scenario, directory):
    """Writes the traces of a scenario to a directory; returns plain data for `restored`."""
    label, path, text = scenario._parts()
    return {"label": label, "path": str(path), "text": text, "traces": scenario._save_traces(directory)}


def restored(data, directory):
    """Returns the scenario of `packed`, with the traces that are in this directory. Native files are mapped, so that processes share them."""
    traces = {file: Trace.open(directory / name) for file, name in data["traces"].items()}
    return Scenario._of_parts(data["label"], data["path"], data["text"], traces)
