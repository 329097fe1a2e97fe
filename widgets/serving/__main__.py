"""``python -m widgets.serving NOTEBOOK``."""

from widgets.serving.server import Served

Served.launch_instance()
