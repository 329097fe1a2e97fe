// anywidget gives a model up whose script is not there within two seconds, and from then on drops all that the kernel
// tells it: on a busy machine a picture would stand still for good, without a word. The script does arrive, and then
// what was dropped is asked for again and the model listens as any widget does.
function keepListening({ model }) {
  const own = model.set({});
  const ready = own?._handle_comm_msg?.({ content: { data: {} } });
  ready?.catch(() => {
    const widget = Object.getPrototypeOf(Object.getPrototypeOf(own));
    own.comm?.on_msg(widget._handle_comm_msg.bind(own));
    own.comm?.send({ method: "request_state" }, own.callbacks());
  });
}
