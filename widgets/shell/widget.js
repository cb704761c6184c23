// The shell may stand already, painted from the page's head; the widget only feeds it.
export default { render({ model }) { looplab({}).connect(model); } };
