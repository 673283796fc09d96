"""Strings that end an output, found in text that comes in pieces.

Text is looked at as if it came one character at a time: the output ends at the first character at
which it ends with a stop string, and if several are complete there, the longest counts. So it
makes no difference where tokens divide the text.

Text that may be the beginning of a stop string is held back, so that nothing that has been given
out ever has to be taken back.
"""

from collections.abc import Sequence


class StopStrings:
    """The stop strings of one output.

    Args:
        stops: The strings, none of them empty.
        include: Whether the one that is found belongs to the text.
    """

    def __init__(self, stops: Sequence[str], *, include: bool) -> None:
        self._stops = stops
        self._include = include
        self._held = ""
        self.found = False

    def feed(self, certain: str, tentative: str = "") -> str:
        """Look on.

        Args:
            certain: The text that has come.
            tentative: Text that would come after it, if there were no further token. It may turn
                out otherwise, so it is not given out unless a stop string ends in it, and must be
                fed again.

        Returns:
            The text that does not belong to a stop string, come what may; nothing once one has been
            found.
        """
        if self.found:
            return ""
        text = self._held + certain + tentative
        ends = [
            (start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0
        ]
        if ends:
            self.found, self._held = True, ""
            end, start = min(ends)
            return text[: end if self._include else start]
        text = self._held + certain
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """What was held back: the output ends without it becoming a stop string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a beginning of ``stop``, and not all of it."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
