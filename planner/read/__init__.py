"""Every input format, read into one Instance.

What can be taken out, and how to write another one of it:

- A scheduler or controller: a file of ``kube/dialects`` with a ``DIALECT``. The page there says how.
- A source of levels: a dialect with ``topologies`` (objects that name levels by labels of nodes, as
  ``kueue.py``) or ``tiers`` (trees of nodes, as ``hypernodes.py``).
- A system that gives GPUs or parts of them by its own names: a dialect with ``gpus``: what pods ask, what
  they hold, the cards that nodes register. ``hived.py`` is the smallest, ``hami.py`` has all of it.
- A back end, by which planned GPUs reach the node: a file of ``planner/cluster/backends`` with a ``BACKEND``
  (its rights, requests and limits), and its name among ``models.instance.policy.GPU_BACKENDS``.
- An input of another system: a file or folder here that makes documents of its own: Clusters and gangs, as
  ``slurm/assembly.py``, or queues, as ``hived.py``. ``sources.py`` tells its files from others,
  ``document_kinds.py`` collects them, and imports the reader only where there is one.

tests/kube/test_kube_dialects.py takes each out in turn, and all at once.
"""
