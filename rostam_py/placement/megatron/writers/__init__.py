"""Writers: the tasks of a template in execution order, a file for each way to write a group's messages.

Example:
    writer = TemplateWriter(context, "forward")
    writer.run(kernel)                         # the kernel, then the collectives that its outputs ask for
    writer.log.close()
    writer.log.tasks
"""
