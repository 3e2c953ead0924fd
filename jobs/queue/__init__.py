"""Wake-ups from those who submit jobs to the worker; the table is the truth, a message only a hint."""

from .queues import Queues as Queues
from .queues import message_id as message_id
