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
    ],
)
def test_a_bad_value_is_named_with_what_would_do(name, text, what):
    with pytest.raises(SettingsError) as caught:
        load(environment={name: text})
    assert str(caught.value).startswith(f"{name}: ")
    assert what in str(caught.value)


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
