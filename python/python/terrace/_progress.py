"""Progress of simulations: tqdm if it is installed, a callable, or nothing."""

import sys


class _Nothing:
    def update(self, share, requests):
        pass

    def close(self):
        pass


class _Callable(_Nothing):
    def __init__(self, report):
        self.report = report

    def update(self, share, requests):
        self.report(share, requests)


class _Tqdm:
    def __init__(self, tqdm, title):
        # Short runs show no bar.
        self.bar = tqdm(total=100.0, desc=title, delay=2, leave=False, bar_format="{desc}: {percentage:3.0f}%|{bar}| {remaining} {postfix}")

    def update(self, share, requests):
        self.bar.set_postfix_str(f"{requests / 1e6:.1f} M requests", refresh=False)
        self.bar.update(100.0 * share - self.bar.n)

    def close(self):
        self.bar.close()


def bar(progress, title):
    """Returns the progress for the argument ``progress`` of a simulation: None shows it where somebody looks."""
    if callable(progress):
        return _Callable(progress)
    looked_at = sys.stderr is not None and sys.stderr.isatty() or "ipykernel" in sys.modules
    if progress is None and not looked_at or progress is False:
        return _Nothing()
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Nothing()
    return _Tqdm(tqdm, title)
