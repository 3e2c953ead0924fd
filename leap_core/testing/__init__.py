"""Fakes that ship with leap, so that programs built on it can be tested without a model."""

from .scripted import Request, Script, ScriptedModelRunner, Stall

__all__ = ["Request", "Script", "ScriptedModelRunner", "Stall"]
