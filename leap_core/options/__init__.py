"""Options of a generation (``generation``) and of loading a model (``loading``)."""

from ..json_fields import JsonObject as JsonObject
from .adapters import LoraAdapter as LoraAdapter
from .generation import AUTO as AUTO
from .generation import PARSERS as PARSERS
from .generation import FunctionCallParser as FunctionCallParser
from .generation import GenerationOptions as GenerationOptions
from .generation import SamplingDefaults as SamplingDefaults
from .loading import CacheOptions as CacheOptions
from .loading import ModelLoadingOptions as ModelLoadingOptions
