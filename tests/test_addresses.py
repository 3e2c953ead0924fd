"""No piece of a password is in an address that is shown, however the address is written."""

from __future__ import annotations

import pytest

from leap_core.errors import LeapError
from leap_core.system.addresses import masked, without_secrets_of

SECRET = "geheim"
ADDRESSES = [
    f"postgresql://me:{SECRET}@db/jobs",
    f"postgresql://me@db/jobs?password={SECRET}",
    f"postgresql://db/jobs?user=me&sslpassword={SECRET}&sslmode=require",
    f"postgresql://me:{SECRET}@x@db/jobs",
    f"postgresql://me:{SECRET}/x@db/jobs",
    f"postgresql://me:x?{SECRET}@db",
    f"postgres:/me:{SECRET}@db",
    f"me:{SECRET}@db/jobs",
    f"host=db password={SECRET}",
    f"host=db password='{SECRET} x'",
    f"redis://:{SECRET}@db",
    f"postgresql://me:{SECRET}/jobs",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_password_is_masked(address):
    assert SECRET not in masked(address) and "***" in masked(address)


def test_text_without_a_secret_stays():
    assert masked(ADDRESSES[0]) == "postgresql://me:***@db/jobs"
    assert masked(ADDRESSES[1]) == "postgresql://me@db/jobs?password=***"
    for address in ("sqlite:///queue.db", "postgresql://[::1]:5432/jobs", "postgresql://a:1,b:2/jobs"):
        assert masked(address) == address


@pytest.mark.slow
@pytest.mark.parametrize("address", [f"postgresql://me:{SECRET}@x@db:port/jobs", f"postgresql://me:{SECRET}"])
def test_what_a_driver_quotes_of_an_address_is_masked(address):
    psycopg = pytest.importorskip("psycopg")
    from jobs.table.postgres import PostgresDatabase

    with pytest.raises(psycopg.Error) as raised:
        psycopg.connect(address, connect_timeout=2)
    assert SECRET not in without_secrets_of(address, str(raised.value))
    with pytest.raises(LeapError) as refused:
        PostgresDatabase.at(address)
    assert SECRET not in str(refused.value)


def test_config_list_shows_no_password(leap):
    leap("config", "set", "jobs_url", f"postgresql://me@db/jobs?password={SECRET}")
    for form in ("text", "json"):
        shown = leap("config", "list", "--format", form)
        assert "me@db/jobs" in shown.stdout and SECRET not in shown.stdout + shown.stderr


def test_each_part_of_a_chain_is_shown_without_its_secrets():
    from leap_core.system.addresses import shown

    assert shown("filecache::s3://key:secret@bucket/in.jsonl") == "filecache::s3://key:***@bucket/in.jsonl"
    assert shown("zip://in.jsonl::https://me:secret@host/a.zip?sig=x") == "zip://in.jsonl::https://me:***@host/a.zip?…"
