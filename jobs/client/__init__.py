"""Jobs for programs: submit, watch, wait, cancel, retry. All that the command line does goes through here.

from jobs.client import JobsClient

with JobsClient() as jobs:
    id = jobs.generate("Why is the sky blue?", model="LFM2.5-1.2B-Instruct")
    for event in jobs.follow(id):
        ...
    print(jobs.wait(id).result)
"""

from ..submission.new_jobs import Following as Following
from .client import JobsClient as JobsClient
from .client import Policy as Policy
