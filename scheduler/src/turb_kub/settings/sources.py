"""Where settings come from: flags, environment, file, defaults."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from turb_kub.settings.settings import TABLE, Setting, Settings, SettingsError, boolean, check_together


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--config` and one flag a setting."""
    group = parser.add_argument_group("settings", "Each may also stand in the environment or in the file, by its name.")
    group.add_argument("--config", metavar="FILE", help="YAML file with settings by name")
    for setting in TABLE:
        default = f" (default: {setting.default})" if setting.default else ""
        group.add_argument(
            setting.flag,
            dest=setting.field,
            metavar="VALUE",
            help=f"{setting.name}: {setting.help}{default}".replace("%", "%%"),
        )


def load_settings(flags: Mapping[str, Any], environment: Mapping[str, str]) -> Settings:
    """Return the settings in force.

    Args:
        flags: as argparse made them: `config`, and one entry a setting, None where the flag was not given.

    Raises:
        SettingsError: naming the setting and where its text came from, or the settings that contradict each other.
    """
    file = flags.get("config")
    in_file = _read_file(file) if file else {}
    values: dict[str, Any] = {}
    for setting in TABLE:
        flag = flags.get(setting.field)
        if flag is not None:
            text, origin = str(flag), setting.flag
        elif setting.name in environment:
            text, origin = environment[setting.name], setting.name
        elif setting.name in in_file:
            text, origin = in_file[setting.name], f"{setting.name} in {file}"
        else:
            continue
        values[setting.field] = _parse(setting, text.strip(), origin)
    settings = Settings(**values)
    check_together(settings)
    return settings


def _parse(setting: Setting, text: str, origin: str) -> Any:
    try:
        return setting.parse(text or setting.default)
    except SettingsError as error:
        raise SettingsError(f"{origin}: {error}") from error


def _read_file(file: str) -> dict[str, str]:
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"settings file {file} could not be read: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings file {file} is no YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"settings file {file} must hold names and values, such as NODE_MEM_LIMIT_MB: 2048")
    known = {setting.name: setting for setting in TABLE}
    result = {}
    for name, value in content.items():
        if name not in known:
            names = ", ".join(sorted(known))
            raise SettingsError(f"settings file {file}: there is no setting {name!r}; there are {names}")
        result[name] = _text(value, f"settings file {file}: {name}", of_boolean=known[name].parse is boolean)
    return result


def _text(value: object, origin: str, *, of_boolean: bool) -> str:
    if value is None:
        return ""
    if of_boolean and isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise SettingsError(f"{origin} must be a text or a number")
    return str(value)
