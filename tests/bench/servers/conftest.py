"""One server for the tests of a file, honest again before each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import pytest

from nanoserve_bench.models import ModelFolder
from nanoserve_bench.plan import Option
from nanoserve_bench.protocol import Launch
from support.completions_server import CompletionsServer, serving
from support.served import options_of


@pytest.fixture(scope="module")
def server(tiny: ModelFolder) -> Iterator[CompletionsServer]:
    with serving(str(tiny.path)) as started:
        yield started


@pytest.fixture(autouse=True)
def _honest(server: CompletionsServer) -> None:
    server.answers.clear()
    server.requests.clear()
    server.most_at_once = 0


@pytest.fixture
def launch(
    server: CompletionsServer, tiny: ModelFolder, make_launch: Callable[..., Launch]
) -> Callable[..., Launch]:
    def make(**more: str) -> Launch:
        told = options_of(server, **more)
        return dataclasses.replace(
            make_launch("openai", model=tiny),
            options=tuple(Option(name=name, value=value) for name, value in told.items()),
        )

    return make
