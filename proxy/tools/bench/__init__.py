"""What Loopline costs and what it saves, measured on the user's own machine. See `docs/bench.md`.

options, plan             what is asked for; how much each scene does          pure
answers, turns            what the upstream answers; what clients send         pure
rows, table, document     what was measured; as text, as JSON                  pure
page, plots               as one page with plots                               pure
websocket, resend         the two ways of sending                              I/O
upstream                  the bench's own upstream, a process of its own       I/O
servers, meter            starting processes; reading their CPU and memory     I/O
contestants, scenes/      who is measured; each scene                          I/O
running, command, cli     brings everything up, runs it; the command           I/O
"""
