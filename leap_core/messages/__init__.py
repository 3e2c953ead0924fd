"""Chat messages (``message``) and the parts of their content (``parts``)."""

from ..json_fields import JsonObject as JsonObject
from .message import ChatMessage as ChatMessage
from .message import ChatMessageRole as ChatMessageRole
from .message import LeapFunctionCall as LeapFunctionCall
from .message import LeapJSONEncoder as LeapJSONEncoder
from .message import leap_object_hook as leap_object_hook
from .message import messages_from_json as messages_from_json
from .parts import Audio as Audio
from .parts import AudioPcmF32 as AudioPcmF32
from .parts import ChatMessageContent as ChatMessageContent
from .parts import Image as Image
from .parts import Speech as Speech
from .parts import Text as Text
