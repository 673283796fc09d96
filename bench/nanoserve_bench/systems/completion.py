"""Reading a streamed completion: what counts as a token, and what cannot be verified.

The events are those of OpenAI's completions API. A token is an id that the server gave, in one of
the forms below; it is neither a chunk nor a piece of text. Whatever contradicts itself (a usage
that counts other tokens than came, a prompt of another length, text without ids) ends the request
with the reason, because a count that cannot be verified is none.

====================================  =========================================================
`choices[0].token_ids`                vLLM and others, asked by `return_token_ids`
`choices[0].logprobs.tokens`          `token_id:<id>`, asked by `return_tokens_as_token_ids`
`choices[0].logprobs.content[].id`    llama.cpp, asked by `logprobs`
====================================  =========================================================
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

_ID = "token_id:"
_SHOWN = 200


class ResponseRefused(Exception):
    """Why a response is not counted; the message says what the server did."""


class RequestRefused(ResponseRefused):
    """The server did not take the request; the message has its status and what it said."""


@dataclass(kw_only=True)
class Stream:
    """What a response brought so far.

    Attributes:
        prompt: Token ids that were sent.
        max_tokens: Tokens that were asked for.
        token_ids: Ids that came, in order.
        token_ns: When each was there, ns: ids of one event share its stamp.
        finish_reason: As the server said it; None while it has not.
        cached_tokens: Prompt tokens from a cache, where the server tells it.
        done: Whether the end of the stream was announced.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    token_ids: list[int] = field(default_factory=list)
    token_ns: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    cached_tokens: int | None = None
    done: bool = False
    _completion_tokens: int | None = None
    _prompt_tokens: int | None = None

    def take(self, data: str, now_ns: int) -> None:
        """Take the data of one event, which was there at `now_ns`.

        Raises:
            ResponseRefused: It is no event of a completion, or it reports an error.
        """
        if data == "[DONE]":
            self.done = True
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ResponseRefused(f"an event is not JSON: {_short(data)}") from error
        if not isinstance(event, dict):
            raise ResponseRefused(f"an event is not an object: {_short(data)}")
        if event.get("error") is not None:
            raise ResponseRefused(f"the server failed in mid-stream: {_short(event['error'])}")
        self._take_usage(event.get("usage"))
        choices = event.get("choices", [])
        if not isinstance(choices, list):
            raise ResponseRefused(f"the choices of an event are no list: {_short(data)}")
        for choice in choices:
            if not isinstance(choice, dict) or choice.get("index", 0) != 0:
                raise ResponseRefused(f"an event has a choice that was not asked: {_short(data)}")
            self._take_choice(choice, now_ns)

    def close(self) -> None:
        """Check what the whole response says about itself.

        Raises:
            ResponseRefused: It is not whole, or its tokens cannot be verified.
        """
        count = len(self.token_ids)
        if not self.done or self.finish_reason is None:
            raise ResponseRefused(f"the stream ended before it was done, after {count} tokens")
        if not count:
            raise ResponseRefused(
                "the server gave no token ids, and a count without them cannot be verified"
            )
        for what, said, there in (
            ("completion tokens, and ids of", self._completion_tokens, count),
            ("prompt tokens, and it was sent", self._prompt_tokens, len(self.prompt)),
        ):
            if said is not None and said != there:
                raise ResponseRefused(f"its usage counts {said} {what} {there}")

    def _take_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        self._completion_tokens = _count(usage, "completion_tokens", self._completion_tokens)
        self._prompt_tokens = _count(usage, "prompt_tokens", self._prompt_tokens)
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            self.cached_tokens = _count(details, "cached_tokens", self.cached_tokens)

    def _take_choice(self, choice: dict[str, Any], now_ns: int) -> None:
        read = choice.get("prompt_token_ids")
        if read is not None and read != list(self.prompt):
            raise ResponseRefused(
                f"the server read another prompt than it was sent: {_short(read)}"
            )
        token_ids = _token_ids(choice)
        if token_ids is None and choice.get("text"):
            raise ResponseRefused(
                "the server gave text without token ids, and a count without them cannot be "
                "verified"
            )
        if token_ids and self.finish_reason is not None:
            raise ResponseRefused("tokens came after the server had said that it was finished")
        self.token_ids += token_ids or ()
        self.token_ns += [now_ns] * len(token_ids or ())
        count = len(self.token_ids)
        if count > self.max_tokens:
            raise ResponseRefused(f"{count} tokens came, and {self.max_tokens} were asked for")
        reason = choice.get("finish_reason")
        if reason is not None:
            self.finish_reason = str(reason)


def _token_ids(choice: dict[str, Any]) -> list[int] | None:
    """The ids that a choice brings, in whichever form; None where it has none of the forms."""
    found: object = choice.get("token_ids")
    logprobs = choice.get("logprobs")
    if found is None and isinstance(logprobs, dict):
        found = _ids_of_logprobs(logprobs)
    if found is None:
        return None
    if not isinstance(found, list) or not all(type(i) is int and i >= 0 for i in found):
        raise ResponseRefused(f"token ids are no list of whole numbers: {_short(found)}")
    return found


def _ids_of_logprobs(logprobs: dict[str, Any]) -> object:
    tokens, content = logprobs.get("tokens"), logprobs.get("content")
    if isinstance(tokens, list) and all(isinstance(t, str) and t.startswith(_ID) for t in tokens):
        ids = [token.removeprefix(_ID) for token in tokens]
        return [int(i) if i.isascii() and i.isdigit() else i for i in ids]
    if isinstance(content, list) and all(isinstance(c, dict) and "id" in c for c in content):
        return [entry["id"] for entry in content]
    return None


def _count(usage: dict[str, Any], name: str, before: int | None) -> int | None:
    value = usage.get(name)
    if value is None:
        return before
    if type(value) is not int or value < 0:
        raise ResponseRefused(f"its usage says {name} {_short(value)}")
    return value


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
