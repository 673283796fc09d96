"""The text of one output while it grows: what has been decided, what was told, where it ends."""

from nanoserve.detokenizer import Detokenizer
from nanoserve.errors import RequestRefused
from nanoserve.stop_strings import StopStrings


class OutputText:
    """Turns tokens into text as they come, up to the first stop string.

    Args:
        detokenizer: Spells the tokens; this output's own.
        stops: Ends the text; this output's own.
    """

    def __init__(self, detokenizer: Detokenizer, stops: StopStrings) -> None:
        self._detokenizer = detokenizer
        self._stops = stops
        self._parts: list[str] = []
        self._told = 0  # parts of it

    @property
    def stopped(self) -> bool:
        """Whether it has come to a stop string."""
        return self._stops.found

    def push(self, token_id: int) -> None:
        """Take a token.

        Raises:
            RequestRefused: When the model's own tokenizer fails on it.
        """
        try:
            certain = self._detokenizer.push(token_id)
        except Exception as error:
            fault = f"token {token_id}: {type(error).__name__}: {error}"
            raise RequestRefused(f"the tokenizer cannot spell {fault}") from error
        self._parts.append(self._stops.feed(certain, self._detokenizer.tentative))

    def flush(self) -> None:
        """There is no token after this: what was held back is text after all."""
        if not self.stopped:
            # Whole characters among it were looked at as tentative text; half ones stop nothing.
            self._parts.append(self._stops.flush() + self._detokenizer.flush())

    def news(self) -> str:
        """The text that has been decided since this was asked last."""
        news = "".join(self._parts[self._told :])
        self._told = len(self._parts)
        return news

    def __str__(self) -> str:
        """All text that has been decided."""
        return "".join(self._parts)
