"""Speaking to an OpenAI-compatible server: one client, one way of naming the served model, one way of saying what went wrong.

The key is read from RAGKIT_API_KEY and never printed or stored; nothing here starts or stops a server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import httpx
import openai

from ragkit.errors import ServiceError

_CONNECT_SECONDS = 5.0
_RETRIES = 2


class ServerClient:
    """A server at `base_url` (ending in `/v1`) that is expected to serve `wanted` (a hub id, or the profile's own name).

    Parameters
    ----------
    base_url
        Root of the OpenAI-compatible interface.
    wanted
        Names under which the model may be served, the preferred one first.
    timeout_seconds
        Longest wait for one answer; 429, 5xx and broken connections are tried again twice.
    """

    def __init__(self, base_url: str, wanted: tuple[str, ...], timeout_seconds: float) -> None:
        self.base_url = base_url.rstrip("/")
        self._wanted = wanted
        self._timeout_seconds = timeout_seconds
        self.api = openai.OpenAI(
            base_url=self.base_url,
            api_key=os.environ.get("RAGKIT_API_KEY") or "none",
            timeout=openai.Timeout(timeout_seconds, connect=min(_CONNECT_SECONDS, timeout_seconds)),
            max_retries=_RETRIES,
        )

    @cached_property
    def model(self) -> str:
        """The served model's id: a wanted name if `/models` lists it, the only id if it lists exactly one, else the first wanted.

        Raises
        ------
        ServiceError
            The server cannot be reached, or lists several models and none that is wanted.
        """
        try:
            with self.faults():
                listed = [str(model.id) for model in self.api.models.list().data or []]
        except ServiceError as error:
            # A server without /models may still answer; one that cannot be reached may not.
            if isinstance(error.__cause__, openai.NotFoundError):
                return self._wanted[0]
            raise
        for name in self._wanted:
            if name in listed:
                return name
        if len(listed) == 1:
            return listed[0]
        if not listed:
            return self._wanted[0]
        raise ServiceError(
            f"server {self.base_url} serves {', '.join(listed[:8])}, not {self._wanted[0]}: name one in the profile"
        )

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Turn whatever the client raises into one line that names the server, what came back and the remedy."""
        try:
            yield
        except openai.APITimeoutError as error:
            raise self.failure(
                f"gave no answer in {self._timeout_seconds:g} s", "raise timeout_seconds or look at the server"
            ) from error
        except openai.APIConnectionError as error:
            raise self.failure("cannot be reached", "start it, or correct base_url in the profile") from error
        except openai.AuthenticationError as error:
            raise self.failure("refused the key", "set RAGKIT_API_KEY") from error
        except openai.APIStatusError as error:
            said = " ".join(str(error.message).split())[:200]
            raise self.failure(f"answered {error.status_code} ({said})", "look at the server's log and the profile") from error
        except (openai.OpenAIError, ValueError, AttributeError, TypeError) as error:
            said = " ".join(str(error).split())[:120]
            raise self.failure(
                f"sent something that is not the OpenAI format ({said})", "check base_url (it ends in /v1)"
            ) from error

    def failure(self, what: str, remedy: str) -> ServiceError:
        """A ServiceError about this server."""
        return ServiceError(f"server {self.base_url} {what}: {remedy}")

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """JSON answer of a route beside `/v1`, None where the server has no such route (vLLM has `/tokenize`, others do not)."""
        root = self.base_url.removesuffix("/v1")
        key = {"Authorization": f"Bearer {os.environ.get('RAGKIT_API_KEY') or 'none'}"}
        try:
            response = httpx.post(f"{root}{path}", json=body, headers=key, timeout=self._timeout_seconds)
            return response.json() if response.is_success else None
        except (httpx.HTTPError, ValueError):
            return None

    def close(self) -> None:
        """Close the connections."""
        self.api.close()
