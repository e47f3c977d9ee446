# SPDX-License-Identifier: MIT
"""Clients that come and go at random, beside the generator: opens, closes, resets, cancels."""

from __future__ import annotations

import random
import threading
from collections import Counter

from tests.support.client import Client
from tests.support.frames import cancel, echo, error, ok, pattern, slow, slow_ok, stream

PAUSE_S = 0.02


class Churner(threading.Thread):
    """Lives one client after the other until `end`; `done` counts them by kind."""

    def __init__(self, address: tuple[str, int], seed: int) -> None:
        super().__init__(name="churner")
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self._address, self._numbers = address, random.Random(seed)
        self._over = threading.Event()

    def run(self) -> None:
        lives = [self.served, self.leaves, self.cancels, self.errs, self.only_opens]
        while not self._over.wait(PAUSE_S * self._numbers.random()):
            live = self._numbers.choice(lives)
            client = Client(self._address)
            try:
                live(client)
            except (OSError, EOFError, AssertionError) as fault:
                self.failures.append(f"{live.__name__}: {fault!r}")
            finally:
                client.close()
            self.done[live.__name__] += 1

    def end(self) -> None:
        """Waits for the last client."""
        self._over.set()
        self.join()

    def served(self, client: Client) -> None:
        sizes = [self._numbers.randrange(4097) for _ in range(self._numbers.randrange(1, 20))]
        client.send(*(echo(at, pattern(size)) for at, size in enumerate(sizes)))
        if self._numbers.randrange(2):
            client.half_close()
        client.expect(*(ok(at, pattern(size)) for at, size in enumerate(sizes)))

    def leaves(self, client: Client) -> None:
        """With replies owed, or in the middle of a frame."""
        frames = b"".join((echo(1, pattern(700)), slow(2), stream(3, [1], 90), echo(4)))
        client.send(frames[: self._numbers.randrange(len(frames) + 1)])
        (Client.reset if self._numbers.randrange(2) else Client.close)(client)

    def cancels(self, client: Client) -> None:
        client.send(slow(1), cancel(1), stream(2, [5], 200), cancel(2), echo(3))
        first = client.read()
        assert first in (slow_ok(1), error(1, 7)), first
        assert client.read_stream()[1].request_id == 2
        client.expect(ok(3))

    def errs(self, client: Client) -> None:
        client.send(echo(1), bytes(24), bytes(self._numbers.randrange(3000)))
        client.expect_end(ok(1), error(0, 2))

    def only_opens(self, client: Client) -> None:
        if self._numbers.randrange(2):
            client.reset()
