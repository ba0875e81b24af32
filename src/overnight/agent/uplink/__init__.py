"""The uplink: reports what a host recorded to its server, and takes tasks from it.

A process beside the recorder, with at most 20 MB: no module that it loads imports dataclasses, subprocess or
http.client, each 1 to 2 MB. What needs more runs in child processes of the agent (`task_runner`).

    HOME/uplink/
        credential         of this agent; written before the server learns it
        state.json         what the server has accepted: places in the files of events and rollups
        rollups-*.jsonl    rollups and observed time that the server does not have yet, within a budget; each
                           with the place of its last reading, where a restart continues
        labels.json        of the host, snapshot.json and audit.json: written by `app.agent_inventory`
        windows/           bundles of events, to be uploaded
        tasks/ID/          a task of the server: task.json, state.json, log
        changes.json       changes that tasks made, each with the command that undoes it

Events are not spooled: the ring keeps them for 400 days, and `state.json` has the place up to which the server
has them. After kill -9 the same report may be sent twice; the server changes nothing the second time.
"""
