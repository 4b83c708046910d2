"""`make soak`: commands are disturbed at random moments, again and again, and must lose nothing.

A trial disturbs one command until it ends: SIGKILL, SIGTERM, a full disk, or the death of a process it has started.
The moment is a random time, or a random change of a file, such as the third checkpoint, and some milliseconds after it.
Whatever happens, no checkpoint is damaged, no progress or label is lost, nobody sees a traceback, and in the end every
file is what an undisturbed run leaves.
"""
