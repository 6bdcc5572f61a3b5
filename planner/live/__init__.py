"""The pipelines of the verbs that touch a live cluster: ``apply`` and ``run``, and what they share.

Promises: clocks, signals and the network enter here and in the verbs; requests are made in
``planner.cluster``, decisions in ``models.applying``. Called by ``planner.verbs``.
"""
