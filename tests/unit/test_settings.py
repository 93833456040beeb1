"""Settings: where each comes from, and what a bad one is told."""

import argparse

import pytest
from turb_kub.settings import Settings, SettingsError, add_flags, load_settings
from turb_kub.settings.settings import TABLE

MI = 2**20


def load(flags=(), environment=None, file=None, tmp_path=None):
    parser = argparse.ArgumentParser()
    add_flags(parser)
    arguments = list(flags)
    if file is not None:
        path = tmp_path / "config.yaml"
        path.write_text(file)
        arguments += ["--config", str(path)]
    return load_settings(vars(parser.parse_args(arguments)), environment or {})


def test_the_table_and_the_values_have_the_same_settings_and_defaults():
    assert [setting.field for setting in TABLE] == list(Settings.__struct_fields__)
    for setting in TABLE:
        assert setting.parse(setting.default) == getattr(Settings(), setting.field), setting.name


def test_every_name_is_the_ceiling_or_has_the_prefix():
    assert all(s.name == "NODE_MEM_LIMIT_MB" or s.name == f"TURB_KUB_{s.field.upper()}" for s in TABLE)


def test_flag_over_environment_over_file_over_default(tmp_path):
    name = "TURB_KUB_SCHEDULER_NAME"
    file = f"{name}: from-file\n"
    assert load().scheduler_name == "turb-kub"
    assert load(file=file, tmp_path=tmp_path).scheduler_name == "from-file"
    assert load(environment={name: "from-env"}, file=file, tmp_path=tmp_path).scheduler_name == "from-env"
    flags = ["--scheduler-name", "from-flag"]
    assert load(flags, {name: "from-env"}, file, tmp_path).scheduler_name == "from-flag"


def test_the_limit_counts_mebibytes_and_empty_means_none(tmp_path):
    assert load(environment={"NODE_MEM_LIMIT_MB": "2048"}).node_mem_limit_mb == 2048 * MI
    assert load(file="NODE_MEM_LIMIT_MB: 2048\n", tmp_path=tmp_path).node_mem_limit_mb == 2048 * MI
    assert load(environment={"NODE_MEM_LIMIT_MB": ""}).node_mem_limit_mb is None
    assert load().node_mem_limit_mb is None


@pytest.mark.parametrize("text", ["abc", "-1", "0", "1e3", "2048Mi", "1.5", "1_000", "٣", "9" * 40])
def test_a_limit_that_is_no_whole_number_of_mebibytes(text):
    with pytest.raises(SettingsError, match=r"NODE_MEM_LIMIT_MB: '.*' is not a whole number of MiB \(at least 1"):
        load(environment={"NODE_MEM_LIMIT_MB": text})


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("TURB_KUB_HTTP_PORT", "70000", "is not a whole number from 0 to 65535"),
        ("TURB_KUB_BINDS_IN_FLIGHT", "0", "is not a whole number from 1 to 1000"),
        ("TURB_KUB_TIE_PERCENT", "nan", "is not a number from 0 to 100"),
        ("TURB_KUB_UNKNOWN_FIELDS", "shrug", "is none of fail, warn"),
        ("TURB_KUB_SCHEDULER_NAME", "Turb Kub", "is not a name"),
        ("TURB_KUB_ACCOUNTING_NAMESPACES", "default,Bad_One", "is not a name"),
        ("TURB_KUB_LOG_LEVEL", "loud", "is none of debug, info, warning, error"),
        ("TURB_KUB_LEADER_ELECT", "yes", "is neither true nor false"),
        ("TURB_KUB_LEASE_NAME", "My Lease", "is not a name"),
        ("TURB_KUB_LEASE_DURATION_SECONDS", "1.5", "is not a whole number from 1 to 3600"),
        ("TURB_KUB_RENEW_DEADLINE_SECONDS", "0", "is not a number of seconds above 0, at most 3600"),
        ("TURB_KUB_RETRY_PERIOD_SECONDS", "nan", "is not a number of seconds above 0, at most 3600"),
        ("TURB_KUB_BIND_TIMEOUT_SECONDS", "inf", "is not a number of seconds above 0, at most 3600"),
    ],
)
def test_a_bad_value_is_named_with_what_would_do(name, text, what):
    with pytest.raises(SettingsError) as caught:
        load(environment={name: text})
    assert str(caught.value).startswith(f"{name}: ")
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"RENEW_DEADLINE": "15"},
            "TURB_KUB_RENEW_DEADLINE_SECONDS is 15, but has to be less than TURB_KUB_LEASE_DURATION_SECONDS, 15",
        ),
        (
            {"RETRY_PERIOD": "8.5"},
            "TURB_KUB_RETRY_PERIOD_SECONDS is 8.5, but 1.2 times as much has to be less than "
            "TURB_KUB_RENEW_DEADLINE_SECONDS, 10",
        ),
        (
            {"BIND_TIMEOUT": "5"},
            "TURB_KUB_BIND_TIMEOUT_SECONDS is 5, but has to be less than the 5 s from TURB_KUB_RENEW_DEADLINE_SECONDS "
            "to TURB_KUB_LEASE_DURATION_SECONDS, so that no binding comes late",
        ),
    ],
)
def test_times_of_the_lease_that_do_not_go_together_are_refused_where_there_is_one(changed, told):
    times = {f"TURB_KUB_{name}_SECONDS": text for name, text in changed.items()}
    with pytest.raises(SettingsError) as caught:
        load(environment=times | {"TURB_KUB_LEADER_ELECT": "true"})
    assert str(caught.value) == told
    assert not load(environment=times).leader_elect


def test_the_default_times_go_together_and_so_do_shorter_ones():
    assert load(["--leader-elect", "true"]).leader_elect
    flags = ["--lease-duration-seconds", "3", "--renew-deadline-seconds", "2", "--bind-timeout-seconds", "0.9"]
    assert load(["--leader-elect", "TRUE", "--retry-period-seconds", "0.5", *flags]).bind_timeout_seconds == 0.9


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False), ("'true'", True), ("", False)])
def test_true_and_false_in_the_file_need_no_quotes(text, value, tmp_path):
    assert load(file=f"TURB_KUB_LEADER_ELECT: {text}\n", tmp_path=tmp_path).leader_elect is value


def test_namespaces_are_a_list_in_the_file_and_commas_elsewhere(tmp_path):
    both = frozenset({"default", "dev"})
    assert load(environment={"TURB_KUB_ACCOUNTING_NAMESPACES": "default, dev"}).accounting_namespaces == both
    file = "TURB_KUB_ACCOUNTING_NAMESPACES: [default, dev]\n"
    assert load(file=file, tmp_path=tmp_path).accounting_namespaces == both


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("NODE_MEM_LIMIT: 1\n", "there is no setting 'NODE_MEM_LIMIT'; there are NODE_MEM_LIMIT_MB"),
        ("- a\n", "must hold names and values"),
        ("a: [\n", "is no YAML"),
        ("NODE_MEM_LIMIT_MB: true\n", "NODE_MEM_LIMIT_MB must be a text or a number"),
        ("NODE_MEM_LIMIT_MB: {a: b}\n", "NODE_MEM_LIMIT_MB must be a text or a number"),
        ("NODE_MEM_LIMIT_MB: 1e3\n", "NODE_MEM_LIMIT_MB in "),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(file, what, tmp_path):
    with pytest.raises(SettingsError) as caught:
        load(file=file, tmp_path=tmp_path)
    assert what in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(SettingsError, match="could not be read: No such file"):
        load(["--config", str(tmp_path / "none.yaml")])


def test_an_empty_file_changes_nothing(tmp_path):
    assert load(file="# nothing\n", tmp_path=tmp_path) == Settings()
