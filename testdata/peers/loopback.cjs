// Loaded into each peer before its own code: whoever listens on all addresses
// listens on the loopback one alone. Not all of them have an option for that.
const { Server } = require('node:net')

const { listen } = Server.prototype
Server.prototype.listen = function (port, ...rest) {
  return typeof rest[0] === 'string' || typeof port === 'object'
    ? listen.call(this, port, ...rest)
    : listen.call(this, port, '127.0.0.1', ...rest)
}
