"""What a notebook shows: a budget to move, the schedule that fits it, and what a real step makes of it.

An explorer is its traits, which a script reads and sets, and has a view, a display and its work. Each of these rooms
imports only what stands below it:

* ``app``: what visitors choose from.
* ``entry_point``: ``explore``, the one call.
* ``explorer``: the object that a notebook holds; it puts the others together.
* ``files``: what is taken away, and what it is called.
* ``jobs``: what goes on in the background, a job each.
* ``display``: what is shown now, to page and script alike.
* ``view``, ``report``: the page, and a page to take away.
* ``animation``: another, which walks through a step by itself.
* ``notebook``, ``serving``: cells that show an explorer, and a server that shows it to visitors.
* ``panels``: the parts of the page, each drawn from a scene.
* ``elements``: what panels and controls are put together from, each with its script.
* ``plots``: pictures as plain values.
* ``traits``, ``text``, ``snippet``: what a script sees, what the page says, and the program that trains.
* ``scene``, ``choices``: what there is to draw, and what users choose.
* ``style``, ``background``: colours and units, and threads.
"""

from widgets.entry_point import explore
from widgets.explorer import Explorer

__all__ = ["Explorer", "explore"]
