"""What `leap serve --web-ui` is asked to offer, and what needs a key."""

from __future__ import annotations

import pytest

from leap_cli.options.web_ui import ServedPage


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--sessions"], "--sessions is for the page: add --web-ui"),
        (["--open"], "--open is for the page: add --web-ui"),
        (["--tool", "calculate"], "--tool is for the page: add --web-ui"),
        (["--web-ui", "--tool", "nosuch"], "there is no tool nosuch"),
        (["--web-ui", "--index", "nosuch"], "there is no index 'nosuch'"),
        (["--web-ui", "--index", "../x"], "cannot be an index's name"),
    ],
)
def test_unavailable_features_are_reported_before_serving(leap, arguments, complaint):
    done = leap("serve", "builtin", "--port", "0", *arguments)
    assert done.code != 0 and complaint in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


def test_private_features_require_a_key(leap):
    env = leap.environment("", terminal=False, stdin_terminal=False)
    assert ServedPage(False, False, False, (), ()).web_page(env, None) is None
    plain = ServedPage(True, False, False, (), ()).web_page(env, None)
    assert plain is not None and plain.key is None and "model-server" in plain.services.guides
    private = [ServedPage(True, False, True, (), ()).web_page(env, key) for key in (None, None, "given")]
    first, second, given = (each.key for each in private if each is not None)
    assert first and second and first != second and given == "given"
    assert private[0] is not None and private[0].services.sessions == env.directories.sessions_file


def test_serve_reports_an_unknown_model_like_other_commands(leap):
    done = leap("serve", "-m", "no-such-model", "--port", "0")
    assert done.code != 0 and "no-such-model" in done.stderr and "No such option" not in done.stderr


@pytest.mark.parametrize("interval", ["nan", "-1", "0.05", "3601", "soon"])
def test_a_keep_alive_interval_out_of_range_is_refused(leap, interval):
    done = leap("serve", "builtin", "--port", "0", "--option", f"sse-ping-interval={interval}")
    assert done.code == 2 and "--option sse-ping-interval" in done.stderr and not done.stdout
