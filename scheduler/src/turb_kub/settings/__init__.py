"""Every setting, in one table: name, meaning, default and how its text is understood.

A setting has one name in the environment and in the YAML file; its flag is that name in lower case without the
prefix. A flag wins over the environment, the environment over the file, the file over the default.
"""

from turb_kub.settings.settings import Settings, SettingsError
from turb_kub.settings.sources import add_flags, load_settings

__all__ = ["Settings", "SettingsError", "add_flags", "load_settings"]
