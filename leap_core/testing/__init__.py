"""Fakes that ship with leap, so that programs built on it can be tested without a model or a network."""

from .hub import FakeHub, Fault, LoggedRequest
from .scripted import Request, Script, ScriptedModelRunner, Stall

__all__ = ["FakeHub", "Fault", "LoggedRequest", "Request", "Script", "ScriptedModelRunner", "Stall"]
