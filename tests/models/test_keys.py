from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from coeval.core.errors import UsageError
from coeval.models.keys import Credential, Keys

SECRET = "sk-test-0123456789abcdef"


class Places:
    """A project and a home in which key files may be put."""

    def __init__(self, root: Path) -> None:
        self.cwd = root / "project"
        self.home = root / "home"
        self.cwd.mkdir()
        (self.home / ".coeval").mkdir(parents=True)

    def write(self, path: Path, text: str) -> Path:
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        return path

    def load(self, path: Path | None = None, env: Mapping[str, str] | None = None) -> Keys:
        return Keys.load(path, env=env or {}, cwd=self.cwd, home=self.home)

    def key(
        self, interface: str, path: Path | None = None, env: Mapping[str, str] | None = None
    ) -> str | None:
        credential = self.load(path, env).credential(interface)
        return credential.api_key if credential is not None else None


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def test_a_provider_is_looked_for_in_one_key_file_after_the_other(places: Places) -> None:
    env = {"COEVAL_KEYS_FILE": "env.yaml"}
    places.write(places.home / ".coeval" / "keys.yaml", "providers: {openai: from-home, groq: home-only}")
    assert places.key("openai") == "from-home"
    places.write(places.cwd / "keys.yaml", "providers: {openai: from-project}")
    assert places.key("openai") == "from-project"
    assert places.key("groq") == "home-only"
    places.write(places.cwd / "env.yaml", "providers: {openai: from-variable}")
    assert places.key("openai", env=env) == "from-variable"
    named = places.write(places.cwd / "named.yaml", "providers: {openai: from-flag}")
    assert places.key("openai", named, env) == "from-flag"
    assert places.key("groq", named, env) == "home-only"


def test_an_entry_is_taken_whole_from_the_first_file_that_has_it(places: Places) -> None:
    places.write(places.home / ".coeval" / "keys.yaml", "providers: {bedrock: {api_key: a, region: b}}")
    places.write(places.cwd / "keys.yaml", "providers: {bedrock: {access_key_id: c, secret_access_key: d}}")
    assert _fields(places.load().credential("bedrock")) == {"access_key_id": "c", "secret_access_key": "d"}


ACCOUNTS = """
providers:
  openai: own
  team-b: {interface: openai, api_key: theirs}
  azure_openai: {api_key: own, endpoint: 'https://own', api_version: v1}
  azure.eu: {interface: azure_openai, api_key: theirs, endpoint: 'https://eu'}
"""


def test_two_accounts_of_a_provider_stand_side_by_side(places: Places) -> None:
    places.write(places.cwd / "keys.yaml", ACCOUNTS)
    keys = places.load(env={"OPENAI_API_KEY": "from-environment"})
    assert _key(keys.credential("openai")) == "own"
    assert _key(keys.credential("openai", account="team-b")) == "theirs"
    azure = keys.credential("azure_openai", account="azure.eu")
    assert azure is not None
    assert azure.fields == {"api_key": "theirs", "endpoint": "https://eu", "api_version": "v1"}
    assert azure.secrets == ("theirs",)


def test_an_account_is_looked_for_in_one_key_file_after_the_other(places: Places) -> None:
    places.write(places.home / ".coeval" / "keys.yaml", ACCOUNTS)
    places.write(places.cwd / "keys.yaml", "providers: {mine: {interface: openai, api_key: nearer}}")
    keys = places.load()
    assert _key(keys.credential("openai", account="team-b")) == "theirs"
    assert _key(keys.credential("openai", account="mine")) == "nearer"
    places.write(places.cwd / "keys.yaml", "providers: {team-b: {interface: openai, api_key: nearer}}")
    assert _key(places.load().credential("openai", account="team-b")) == "nearer"


@pytest.mark.parametrize(
    ("interface", "account", "words"),
    [
        ("openai", "team-c", "the account `team-c` is not in {path}; did you mean `team-b`?"),
        ("openai", "else", "known are: azure.eu, team-b."),
        ("groq", "team-b", "the account `team-b` is one of the interface `openai`, not of `groq`"),
        ("openai", SECRET, "the account that the model names is not in"),
    ],
)
def test_an_account_that_is_not_there_is_told(
    places: Places, interface: str, account: str, words: str
) -> None:
    path = places.write(places.cwd / "keys.yaml", ACCOUNTS)
    with pytest.raises(UsageError) as raised:
        places.load().credential(interface, account=account)
    assert words.format(path=path) in str(raised.value)
    assert SECRET not in str(raised.value)


def test_an_account_without_any_key_file_is_told_where_one_may_stand(places: Places) -> None:
    with pytest.raises(
        UsageError, match=r"a key file \(keys, .*none of these exists\); no account is named there"
    ):
        places.load().credential("openai", account="team-b")


def test_the_models_own_key_goes_before_the_file_and_the_file_before_the_environment(places: Places) -> None:
    env = {"OPENAI_API_KEY": "from-environment", "GROQ_API_KEY": " from-environment\n"}
    places.write(places.cwd / "keys.yaml", "providers: {openai: from-file}")
    keys = places.load(env=env)
    assert _key(keys.credential("openai", "from-model")) == "from-model"
    assert _key(keys.credential("openai")) == "from-file"
    assert _key(keys.credential("groq")) == "from-environment"
    assert keys.credential("deepseek") is None


def _fields(credential: Credential | None) -> Mapping[str, str]:
    assert credential is not None
    return credential.fields


def _key(credential: Credential | None) -> str | None:
    return credential.api_key if credential is not None else None


@pytest.mark.parametrize(
    ("interface", "env", "expected"),
    [
        ("gemini", {"GOOGLE_API_KEY": "second", "GEMINI_API_KEY": "first"}, "first"),
        ("gemini", {"GOOGLE_API_KEY": "second", "GEMINI_API_KEY": " "}, "second"),
        ("cohere", {"COHERE_API_KEY": "key"}, "key"),
        ("huggingface_api", {"HF_TOKEN": "key"}, "key"),
        ("vertex", {"OPENAI_API_KEY": "key"}, None),
    ],
)
def test_the_variables_of_a_host_are_tried_in_order(
    places: Places, interface: str, env: dict[str, str], expected: str | None
) -> None:
    assert places.key(interface, env=env) == expected


def test_the_key_file_of_the_guide_is_read_whole(places: Places) -> None:
    places.write(
        places.cwd / "keys.yaml",
        """
providers:
  huggingface: hf_abc
  mistral:
  azure_openai:
    api_key:     azure-key
    endpoint:    https://my-resource.openai.azure.com/
    api_version: 2024-08-01-preview
  bedrock:
    access_key_id:     AKIA
    secret_access_key: hidden
    region:            us-east-1
  vertex:
    project:  my-gcp-project
    location: us-central1
    service_account_key: /path/to/key.json
""",
    )
    keys = places.load(env={"AWS_BEARER_TOKEN_BEDROCK": "other identity", "AWS_SESSION_TOKEN": "other"})
    assert _fields(keys.credential("azure_openai")) == {
        "api_key": "azure-key",
        "endpoint": "https://my-resource.openai.azure.com/",
        "api_version": "2024-08-01-preview",
    }
    assert _fields(keys.credential("bedrock")) == {
        "access_key_id": "AKIA",
        "secret_access_key": "hidden",
        "region": "us-east-1",
    }
    assert _fields(keys.credential("vertex"))["service_account_key"] == "/path/to/key.json"
    assert _key(keys.credential("huggingface_api")) == "hf_abc"
    assert keys.credential("mistral") is None


def test_a_models_own_key_keeps_the_address_of_the_file(places: Places) -> None:
    places.write(places.cwd / "keys.yaml", "providers: {azure_openai: {api_key: a, endpoint: 'https://b'}}")
    assert _fields(places.load().credential("azure_openai", "own")) == {
        "api_key": "own",
        "endpoint": "https://b",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"providers: {{opnai: {SECRET}}}", "did you mean `openai`?"),
        (f"providers: {{{SECRET}: openai}}", "holds a name that is not a provider"),
        (f"providers: {{openai: {{api_ky: {SECRET}}}}}", "it may have: api_key"),
        (f"providers: {{openai: {{{SECRET}: x}}}}", "it may have: api_key"),
        (f"providers: {{openai: [{SECRET}]}}", "api_key must be text"),
        ("providers: {openai: 1234567890}", "put it in quotes"),
        (f"providers: {{team-b: {SECRET}}}", "An account of your own says its `interface:`"),
        (f"providers: {{team-b: {{interface: opnai, api_key: {SECRET}}}}}", "did you mean `openai`?"),
        (f"providers: {{team-b: {{interface: [x], api_key: {SECRET}}}}}", "names no interface"),
        (f"providers: {{team-b: {{interface: openai, key: {SECRET}}}}}", "it may have: api_key"),
        (f"providers: {{{SECRET}: {{interface: openai, api_key: x}}}}", "with an invalid name"),
        (f"providers: {{a b: {{interface: openai, api_key: {SECRET}}}}}", "with an invalid name"),
        (f"providers: {{groq: {{interface: openai, api_key: {SECRET}}}}}", "with an invalid name"),
        ("providers: {openai: ''}", "must be text"),
        (f"providers: {SECRET}", "a key file reads"),
        (f"openai: {SECRET}", "a key file reads"),
        (f"- {SECRET}", "a key file reads"),
        (f"providers:\n  openai: {SECRET}\n  openai: {SECRET}", "keys.yaml:3: the key file names the same"),
        (f"providers:\n  openai: '{SECRET}\n", "not valid YAML"),
        (f"providers:\n  openai: !!python/name:os.system {SECRET}", "not valid YAML"),
        (f"providers:\n\topenai: {SECRET}", "keys.yaml:2: the key file is not valid YAML"),
    ],
)
def test_a_wrong_key_file_is_refused_without_showing_what_is_in_it(
    places: Places, text: str, expected: str
) -> None:
    path = places.write(places.cwd / "keys.yaml", text)
    with pytest.raises(UsageError) as raised:
        places.load()
    assert str(path) in str(raised.value)
    assert expected in str(raised.value)
    assert SECRET not in str(raised.value)
    assert "1234567890" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_file_that_is_not_utf8_is_refused(places: Places) -> None:
    path = places.cwd / "keys.yaml"
    path.write_bytes(b"providers: {openai: \xff\xfe}")
    path.chmod(0o600)
    with pytest.raises(UsageError, match="not valid YAML in UTF-8"):
        places.load()


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "providers:\n", "providers: {}\n"])
def test_an_empty_key_file_holds_no_keys(places: Places, text: str) -> None:
    places.write(places.cwd / "keys.yaml", text)
    assert places.key("openai") is None


def test_a_file_that_was_named_must_be_there(places: Places) -> None:
    with pytest.raises(UsageError, match=r"gone\.yaml, the key file that keys names"):
        places.load(Path("gone.yaml"))
    with pytest.raises(UsageError, match="COEVAL_KEYS_FILE names"):
        places.load(env={"COEVAL_KEYS_FILE": "/nowhere/keys.yaml"})


def test_a_tilde_in_the_variable_is_the_home(places: Places) -> None:
    places.write(places.home / "mine.yaml", "providers: {openai: from-home}")
    assert places.key("openai", env={"COEVAL_KEYS_FILE": "~/mine.yaml"}) == "from-home"


def test_a_key_file_that_everybody_can_read_is_warned_of(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    path = places.write(places.cwd / "keys.yaml", f"providers: {{openai: {SECRET}}}")
    with caplog.at_level(logging.WARNING):
        places.load()
        assert caplog.text == ""
        path.chmod(0o644)
        places.load()
    assert "chmod 600" in caplog.text
    assert SECRET not in caplog.text


def test_the_places_of_a_key_are_all_named(places: Places) -> None:
    said = places.load().describe_places("gemini")
    for place in (
        "access_key",
        "providers.gemini",
        "(keys, ",
        "COEVAL_KEYS_FILE",
        "GEMINI_API_KEY or GOOGLE",
    ):
        assert place in said
    path = places.write(places.cwd / "keys.yaml", "providers: {}")
    assert str(path) in places.load().describe_places("gemini")


def test_the_repr_of_a_credential_shows_no_value() -> None:
    credential = Credential({"api_key": SECRET, "endpoint": "https://here"})
    assert repr(credential) == "Credential(api_key=…, endpoint=…)"
    assert credential.secrets == (SECRET,)
